"""Dialogues, against homes whose devices are followed here."""

import random

import function

ROOMS = ["kitchen", "bedroom", "bathroom", "living room", "dining room", "guest room", "office", "nursery", "hallway",
         "attic", "garage", "garden"]
DEVICES = [f"{room} {thing}" for room in ROOMS for thing in ("light", "lamp", "heating", "fan", "television", "radio")]


class Alexa(function.FunctionTest):
    name = "alexa"
    wrong = [({}, "utterances"), ({"utterances": []}, "utterances"), ({"utterances": [5]}, "characters"),
             ({"utterances": [""]}, "characters"), ({"utterances": ["x" * 201]}, "characters"),
             ({"utterances": ["a"] * 51}, "utterances"), ({"utterances": ["a"], "home": 1}, "home"),
             ({"utterances": ["a"], "code": "1"}, "code")]

    def says(self, home, dialogue, **values):
        """Holds the answers to what is expected of each."""
        answers = self.answer(home=home, utterances=[said for said, _ in dialogue], **values)["answers"]
        self.assertEqual([(answer["utterance"], answer["say"]) for answer in answers], dialogue)

    def test_a_dialogue_goes_on_in_the_next_call(self):
        self.says("a", [("What is on?", "Nothing is on."),
                        ("Alexa, turn on the kitchen light please!", "The kitchen light is on."),
                        ("Could you dim it to 40 percent?", "The kitchen light is at 40 percent.")])
        self.says("a", [("How is it?", "The kitchen light is at 40 percent."),
                        ("turn it off", "The kitchen light is off."),
                        ("What about the living room television", "The living room television is off.")])
        self.says("b", [("turn it off", "Which device do you mean?")])

    def test_doors_open_with_the_code_alone(self):
        self.says("doors", [("Is the front door locked", "The front door is locked."),
                            ("4711", "I have not asked for a code."),
                            ("Unlock the front door", "What is your code?"), ("1111", "That code is wrong."),
                            ("4711", "I have not asked for a code."),
                            ("Open the front door", "What is your code?"), ("good night", "Everything is off."),
                            ("4711", "I have not asked for a code."),
                            ("Open the front door", "What is your code?")], code="4711")
        self.says("doors", [("My code is 4711", "The front door is unlocked."), ("Lock it", "The front door is locked."),
                            ("turn it on", "The front door cannot do that.")], code="4711")

    def test_numbers_have_bounds(self):
        self.says("bounds", [("set the office heating to 31 degrees", "A heating can be set from 5 to 30 degrees."),
                             ("set the office heating to 30 degrees", "The office heating is at 30 degrees."),
                             ("dim the office lamp to 101 percent", "A light can be set from 0 to 100 percent."),
                             ("dim the office lamp to 0 percent", "The office lamp is off."),
                             ("turn on the office lamp", "The office lamp is on.")])

    def test_slips_of_the_tongue(self):
        self.says("slips", [("turn on the kichen light", "The kitchen light is on."),
                            ("swich off the kitchen lihgt", "The kitchen light is off."),
                            ("turn on the televison in the bedroom", "The bedroom television is on."),
                            ("what is the sate of the bedroom televison", "The bedroom television is on.")])

    def test_what_means_nothing_here(self):
        self.says("nothing", [(said, "I did not understand that.") for said in (
            "Tell me a joke", "What is the weather like in Berlin?", "Play some music in the kitchen", "?", "Grüße")])

    def test_what_was_said_of_each_device_is_kept(self):
        draw, on = random.Random(12), set()
        for _ in range(20):
            dialogue = []
            for _ in range(10):
                device, way = draw.choice(DEVICES), draw.randrange(4)
                if way == 0:
                    on.add(device)
                    dialogue.append((draw.choice(["Turn on the {}", "switch the {} on"]).format(device), f"The {device} is on."))
                elif way == 1:
                    on.discard(device)
                    dialogue.append((draw.choice(["Turn the {} off", "switch off the {}"]).format(device), f"The {device} is off."))
                elif device.endswith("heating"):
                    continue
                else:
                    dialogue.append((f"Is the {device} on?", f"The {device} is {'on' if device in on else 'off'}."))
            self.says("random", [(said, self.heated(answer)) for said, answer in dialogue])
        names = ", ".join(f"the {device}" for device in DEVICES if device in on)
        self.says("random", [("which devices are on", f"On: {names}.")])

    @staticmethod
    def heated(answer):
        return answer.replace("heating is on", "heating is at 20 degrees")

    def test_of_very_many_homes_the_latest_stay(self):
        for home in range(65):
            self.says(f"home {home}", [("turn on the attic fan", "The attic fan is on.")])
        self.says("home 1", [("is the attic fan on", "The attic fan is on.")])
        self.says("home 0", [("is the attic fan on", "The attic fan is off.")])
